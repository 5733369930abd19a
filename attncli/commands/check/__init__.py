"""check: other numbers compared with attention: do they match, and if not, which bug is it?"""
